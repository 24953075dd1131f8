-- What the journal's bodies add up to, by kind.
SELECT kind, sum(length(body)) FROM events GROUP BY kind ORDER BY 2 DESC;
