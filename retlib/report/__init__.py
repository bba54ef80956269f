"""Claims to verdicts, tables, figures, the papers' numbers."""
