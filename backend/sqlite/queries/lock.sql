-- Changes nothing, fires no trigger, and takes the write lock: who then reads the mark reads the newest one.
UPDATE {table} SET {token} = {token} WHERE 0
