"""What every part stands on: errors, log, paths, terminal, files that survive a power cut. Imports nothing of ours."""
