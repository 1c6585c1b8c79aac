SELECT w::text FROM croft.work_v1($1, $2, $3::text::json, $4::text::json, $5::text::json) AS w WHERE croft.version_18()
