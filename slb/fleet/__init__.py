"""The fleet as one view: what this process shows, what all show, what became of it, and what an operator should know."""
