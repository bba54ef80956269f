"""Profiles, execution, build, sweeps, the command line."""
