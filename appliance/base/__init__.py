"""What every other part stands on: errors, the log, files that survive a power cut. Imports nothing of ours."""
