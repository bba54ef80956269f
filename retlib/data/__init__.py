"""Collections and data sets: texts, tokens, passages, pairs."""
