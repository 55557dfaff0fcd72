module pg_lock_history

go 1.26
