-- query, line 1, column 1: expected SELECT or CREATE, but the text ends

