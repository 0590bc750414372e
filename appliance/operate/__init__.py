"""What owning it needs: the admin page's service, self-test, upgrades, terminal commands, crash reports."""
