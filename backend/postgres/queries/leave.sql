DELETE FROM croft.waiter w WHERE w.id = $1
