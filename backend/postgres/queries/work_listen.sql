LISTEN "croft.work"
