SELECT current_setting('lock_timeout'),
       set_config('lock_timeout', $1::text, true),
       set_config('idle_in_transaction_session_timeout', CASE current_setting('idle_in_transaction_session_timeout')
           WHEN '0' THEN $2::text ELSE current_setting('idle_in_transaction_session_timeout') END, true)
