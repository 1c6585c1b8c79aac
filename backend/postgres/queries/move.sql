-- {…} stand for names and conditions of the guarded table, and for the places of arguments.
UPDATE {table} SET {key} = {new_key}::text, {token} = {new_token}::bigint, {grant} = {new_grant}::text, {seq} = {new_seq}::text::numeric WHERE {where}
