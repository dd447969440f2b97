"""The words that every stage speaks; imports nothing of ours."""
