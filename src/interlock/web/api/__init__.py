"""The endpoints of the HTTP API, one module per resource."""
