"""`/`: the playground. A text to continue or a conversation, streamed, with probabilities and where it was computed."""
