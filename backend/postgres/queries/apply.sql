SELECT a.i, a.verdict, a.now_us, a.past,
       (a.lease).token, (a.lease).grant_id, (a.lease).owner, (a.lease).instance, (a.lease).state, (a.lease).cause, (a.lease).ended,
       (a.lease).actor, (a.lease).note, (a.lease).acquired, (a.lease).renewed, (a.lease).deadline, (a.lease).ttl, (a.lease).every,
       (a.lease).succeeded, (a.lease).hold_until, (a.lease).guards, (a.lease).progress, (a.lease).progress_at, (a.lease).terms
FROM croft.apply_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) AS a
