"""What each path answers: one module per resource."""
