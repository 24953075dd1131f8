"""Tools that fetch and search web pages."""
