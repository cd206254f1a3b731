"""Authorization: who may send which event. Decisions are pure functions of principal, entity, context and event."""
