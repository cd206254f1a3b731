"""Who may send what. Decisions are pure functions over (principal, entity, context, event); nothing here does I/O."""
