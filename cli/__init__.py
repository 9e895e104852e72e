"""The command line of tdabias: one thin file per command."""
