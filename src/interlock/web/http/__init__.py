"""HTTP itself: endpoints, errors, OpenAPI and the middleware in front."""
