"""Owning it: what the admin page does, the self-test, upgrades, commands in a terminal."""
