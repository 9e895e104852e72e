"""What the model says, what removing heads changes in it, and how it goes with the heads."""
