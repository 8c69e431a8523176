"""What only the lessons use: loops to read."""
