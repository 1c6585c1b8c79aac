DELETE FROM croft.waiter w WHERE w.id = $1 AND w.key = ANY ($2)
