-- Keeps triggers and other owners away from the table until the transaction ends.
LOCK TABLE croft.fence IN ROW EXCLUSIVE MODE
