"""The composer: the message being written, its attachments, and how it will be answered."""
