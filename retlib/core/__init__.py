"""Errors, parameter rules, the machine (threads, seeds, devices, versions), the cache of artefacts."""
