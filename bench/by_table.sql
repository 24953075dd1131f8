-- Bytes of the file by table and index, and how many are unused; needs dbstat, which the apsw wheel has.
SELECT name, sum(pgsize), sum(unused) FROM dbstat GROUP BY name ORDER BY 2 DESC;
