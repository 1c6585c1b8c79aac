-- {…} stand for names and conditions of the guarded table, and for the places of arguments.
UPDATE {table} SET {key} = {new_key}, {token} = {new_token}, {grant} = {new_grant}, {seq} = {new_seq} WHERE {where}
