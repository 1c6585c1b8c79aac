-- {…} stand for names and conditions of the guarded table.
SELECT coalesce({key}, ''), coalesce({token}, 0), coalesce({grant}, ''), CAST(coalesce({seq}, '0') AS TEXT) FROM {table} WHERE {where}
