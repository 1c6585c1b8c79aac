-- {…} stand for names and conditions of the guarded table.
SELECT coalesce({key}, ''), coalesce({token}, 0)::bigint, coalesce({grant}, ''), coalesce({seq}, 0)::text FROM {table} WHERE {where}
