"""What touches the whole process, and so the application around: in one place, and told of in docs/event_loop.md."""
