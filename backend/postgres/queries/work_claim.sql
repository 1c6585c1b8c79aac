SELECT c::text FROM croft.claim_v1($1, $2::text::json, $3, $4::text::uuid, $5, $6, $7, $8, $9) AS c WHERE croft.version_18()
