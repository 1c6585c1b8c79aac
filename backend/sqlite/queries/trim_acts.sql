DELETE FROM main.croft_act WHERE id <= (SELECT max(id) FROM main.croft_act) - ?1
