INSERT INTO main.croft_refusal (at, item, queue, verb, why, presented, presented_grant, presented_owner, newest, newest_grant, newest_owner) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
