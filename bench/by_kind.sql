-- Total size of the journal's bodies by kind.
SELECT kind, sum(length(body)) FROM events GROUP BY kind ORDER BY 2 DESC;
