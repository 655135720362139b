"""Applications: what they communicate, as step files; what each becomes on so many ranks; whether it can end."""
