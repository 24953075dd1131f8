"""What can be seen and changed of a server while it runs: the ports between its doors and who does it."""
