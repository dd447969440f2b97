"""Sessions: ``await session.run(fetches, feeds)``."""
