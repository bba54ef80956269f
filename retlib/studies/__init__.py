"""What a notebook declares and records; what only one part needs, one file a part."""
