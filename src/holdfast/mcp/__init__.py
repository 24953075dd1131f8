"""Tools that other programs offer over the Model Context Protocol."""
