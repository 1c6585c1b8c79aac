SELECT croft.now_us()
