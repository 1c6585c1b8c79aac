LISTEN "croft.wake"
