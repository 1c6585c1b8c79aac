SELECT croft.now_us() WHERE croft.version_18()
