"""A turn while memory is told and asked, beside the same turn without a memory."""
