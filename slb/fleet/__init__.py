"""The fleet as one view: what this process shows, what all show, and what an operator should know."""
